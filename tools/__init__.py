"""How committed data is made from what it is made of."""
