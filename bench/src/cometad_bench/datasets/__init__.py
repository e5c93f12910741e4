"""Readers of public archives, drift and plants of five characters."""
