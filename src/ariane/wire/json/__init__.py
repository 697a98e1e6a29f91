"""JSON in fastjson's dialect."""
