"""The model seam: what an agent needs of a language model, and the clients that provide it."""
