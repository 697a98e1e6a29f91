"""Messages that wait: delay levels, and delivery times of their own."""
