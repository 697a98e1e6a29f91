"""JSON in the dialect of Java's fastjson: parser, encoder, and conversion to typed values."""
