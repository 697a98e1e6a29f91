"""What a broker answers: one class per area, its fields are all it touches."""
