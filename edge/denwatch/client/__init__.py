"""What a rescue app uses: the vocabulary and the subscription language."""
