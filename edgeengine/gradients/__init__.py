"""Laptop side: training graphs. Any ONNX model in; gradient, optimizer, evaluation and inference graphs out, in plain ONNX.

Rules are in `rules/`, one table; `differentiate.py` walks a graph backwards. Device-side folders never import this one.
"""
