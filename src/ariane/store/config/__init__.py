"""The files under `config/`: JSON tables with checksums, journals, and the record of deleted topics."""
