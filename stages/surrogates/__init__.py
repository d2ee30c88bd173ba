"""Synthetic sets of FedLAP and FedDM: the client's file and what the server makes of it."""
