"""The stored message record: every packer and parser of its layout."""
