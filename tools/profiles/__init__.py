"""The device profiles of `profiles/`, made from the tables in `profiles/measured/`: `python -m tools.profiles`."""
