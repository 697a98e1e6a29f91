"""The fast decoders of frequent requests, one for each kind of header, and templates for what is written often."""
