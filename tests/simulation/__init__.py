"""Whole crawls in virtual time: the real engine against simulated sites, and a judge of what came of them."""
