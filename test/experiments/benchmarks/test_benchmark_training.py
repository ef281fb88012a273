import pathlib

import numpy as np
import pytest

from sparse_embed.experiments.benchmarks import training_speed
from sparse_embed.flags.train_config import (
    DataConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)


def test_all_ways_are_timed_in_every_round(vectors, tmp_path):
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors)),
        ModelConfig("linear", 16),
        optimization=OptimizationConfig(batch_size=32),
    )
    records = training_speed.measure(config, rounds=2, steps=3, folder=pathlib.Path(tmp_path))
    assert [record["method"] for record in records] == ["training", "bare"]  # no such PyTorch
    for record in records:
        assert len(record["seconds"]) == 2
        rates = [32 * 3 / seconds for seconds in record["seconds"]]
        assert record["images_per_second"] == pytest.approx(2 / sum(1 / rate for rate in rates))


def test_ratio_is_the_median_over_the_rounds():
    """Bare steps take 0.9, 0.5 and 1 of the training's time."""
    records = [
        {"method": "training", "seconds": [10.0, 2.0, 4.0]},
        {"method": "bare", "seconds": [9.0, 1.0, 4.0]},
    ]
    assert training_speed.speed_of_training(records) == {"bare": 0.9}


@pytest.mark.engines
def test_pytorch_network_computes_the_same():
    """The Keras encoder's weights, put into PyTorch's, give its embeddings and its loss."""
    torch = pytest.importorskip("torch", reason="the same network in PyTorch needs torch")
    from sparse_embed import losses, models
    from sparse_embed.experiments.benchmarks.torch_training import ArcFaceConvnet, arcface

    encoder = models.build_encoder("convnet", 8, "relu", (16, 16, 1), width=0.2)
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(6, 16, 16, 1)).astype(np.float32)
    kernels = [w for w in encoder.get_weights() if w.ndim > 1]
    network = ArcFaceConvnet([k.shape[-1] for k in kernels[:3]], 16, 8, num_classes=5).eval()
    *convolutions, linear = kernels
    height, channels = 2, convolutions[-1].shape[-1]
    # PyTorch flattens channels first, Keras last.
    linear = linear.reshape(height, height, channels, -1).transpose(2, 0, 1, 3)
    own = [p for p in network.encoder.parameters() if p.ndim > 1]
    with torch.no_grad():
        for target, kernel in zip(own[:3], convolutions, strict=True):
            target.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()))
        own[3].copy_(torch.from_numpy(linear.reshape(-1, linear.shape[-1]).T.copy()))
        found, cosines = network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    np.testing.assert_allclose(found.numpy(), encoder(images).numpy(), atol=1e-5)
    labels = np.array([0, 1, 2, 3, 4, 0])
    expected = losses.arcface(labels, cosines.numpy(), 0.5, 64.0).numpy().mean()
    assert float(arcface(torch.from_numpy(labels), cosines, 0.5, 64.0)) == pytest.approx(
        expected, rel=1e-4
    )
