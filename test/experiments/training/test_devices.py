import keras
import numpy as np

from sparse_embed.experiments.training import devices
from sparse_embed.flags.train_config import DistributionConfig


def test_the_seed_decides_the_first_weights():
    def first_weights(seed):
        devices.set_up(DistributionConfig(), seed)
        layer = keras.layers.Dense(4)
        layer.build((None, 3))
        return layer.get_weights()[0]

    np.testing.assert_array_equal(first_weights(3), first_weights(3))
    assert np.abs(first_weights(3) - first_weights(4)).max() > 0.1
