"""What an error means, and what is done about it.

Pure decisions: an exception becomes a class, a class and a count become a decision, an exception
becomes text that is safe to store. Chance is handed in and no clock is read; whoever asks acts.
"""
