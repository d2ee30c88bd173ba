"""What a differentially private stage does before and after it reads data."""
