"""From a model file to a model repository in Triton's layout."""
