"""What a compressor keeps of a conversation: expectations from its state, verdicts per view, paired comparisons."""
