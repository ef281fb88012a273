import h5py
import keras
import numpy as np
import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.experiments.training import checkpoints

RNG = np.random.default_rng(0)
EXAMPLES, TARGETS = RNG.normal(size=(40, 8, 3)), RNG.normal(size=(40, 8, 1))


def make(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def fit(model, start, stop):
    for step in range(start, stop):
        model.train_on_batch(EXAMPLES[step], TARGETS[step])


def adam():
    return keras.optimizers.Adam(0.01)


def scaled_adam():
    """A first scale so large that gradients overflow: the first batches change nothing."""
    return keras.optimizers.LossScaleOptimizer(adam(), 2.0**127)


@pytest.mark.parametrize("optimizer", [adam, scaled_adam])
def test_restored_training_goes_on_as_if_never_stopped(tmp_path, optimizer):
    whole = make(optimizer())
    fit(whole, 0, 40)
    half = make(optimizer())
    fit(half, 0, 25)
    checkpoints.save(tmp_path / "checkpoints" / checkpoints.LAST, half, 25)
    resumed = make(optimizer())
    assert checkpoints.restore(tmp_path / "checkpoints" / checkpoints.LAST, resumed) == 25
    fit(resumed, 25, 40)
    for one, two in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    counted = int(whole.optimizer.iterations.numpy())
    assert counted == 40 if optimizer is adam else 0 < counted < 40


def test_nothing_to_restore(tmp_path):
    assert checkpoints.restore(tmp_path / "none.weights.h5", make("adam")) == 0


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path):
    path = tmp_path / "checkpoints" / checkpoints.LAST
    checkpoints.save(path, make(adam()), 25)
    whole = path.read_bytes()
    damaged = [b"", b"garbage" * 99, *(whole[: len(whole) * part // 8] for part in range(1, 8))]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"last\.weights\.h5: expected a checkpoint"):
            checkpoints.restore(path, make(adam()))
    path.write_bytes(whole)
    with h5py.File(path, "a") as file:
        del file.attrs["steps_trained"]
    with pytest.raises(DataError, match=r"last\.weights\.h5: expected a checkpoint"):
        checkpoints.restore(path, make(adam()))
