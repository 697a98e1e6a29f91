"""What commands share: connection, parameters, output."""
