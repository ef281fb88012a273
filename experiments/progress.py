"""A progress bar for training that shows what matters for sparse embeddings."""

import keras
import tqdm


class ProgressBar(keras.callbacks.Callback):
    """One bar for the whole run, with the running mean of each training figure.

    Args:
        description: what stands before the bar.
        steps: length of the run.
    """

    def __init__(self, description: str, steps: int):
        super().__init__()
        self._description = description
        self._steps = steps

    def on_train_begin(self, logs=None):
        """Opens the bar."""
        self._bar = tqdm.tqdm(total=self._steps, desc=self._description, unit="step")

    def on_train_batch_end(self, batch, logs=None):
        """Moves the bar on by a step; figures are read now and then, as reading costs a sync."""
        self._bar.update()
        if batch % 20 == 0 and logs:
            figures = {name: f"{float(value):.4g}" for name, value in logs.items()}
            self._bar.set_postfix(figures, refresh=False)

    def on_train_end(self, logs=None):
        """Closes the bar."""
        self._bar.close()
