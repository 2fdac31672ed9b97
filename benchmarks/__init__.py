"""Side-by-side measurements: the engine beside a bare queue, the simulator beside SimSo. `python -m benchmarks`."""
