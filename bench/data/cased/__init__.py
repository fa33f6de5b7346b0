"""The tiny cased text of the gate's reference: a backbone with random weights, pairs, labelled sentences."""
