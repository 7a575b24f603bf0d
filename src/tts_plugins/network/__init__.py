"""ONNX networks: cut in memory, and run so that a run can be broken off."""
