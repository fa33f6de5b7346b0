"""The embedded world ``mini``: lexicon, grammar, events, training text and graded pairs."""
