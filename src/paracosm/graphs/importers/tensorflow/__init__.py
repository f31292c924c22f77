"""TensorFlow's graphs and step statistics, read without TensorFlow."""
