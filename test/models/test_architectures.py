"""The full-size networks against figures derived here from the papers' tables."""

import collections

import keras
import numpy as np
import pytest

from sparse_embed.models import build_encoder


def trainable(model: keras.Model) -> int:
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


def convolutions(model: keras.Model, kernel: int) -> dict[tuple[int, int], int]:
    """(side, channels) of the output -> number of ordinary convolutions of this kernel."""
    return dict(
        collections.Counter(
            (layer.output.shape[1], layer.output.shape[3])
            for layer in model.layers
            if type(layer) is keras.layers.Conv2D and layer.kernel_size == (kernel, kernel)
        )
    )


def head(features: int, dim: int) -> int:
    """Linear map without bias, then gamma and beta of the batch norm."""
    return features * dim + 2 * dim


def test_mobilefacenet():
    """Chen et al. 2018, table 1, with 128-d embeddings.

    Convolutions have no bias; each is followed by a batch norm (2 per channel) and, unless linear,
    by a PReLU (1 per channel). A bottleneck from c to c' with expansion t has e = t c channels
    inside and c e + 9 e + e c' weights.

        conv 3x3             27 * 64                                  =   1,728
        depthwise 3x3        9 * 64                                   =     576
        5 x (64, t 2, 64)    5 (64 * 128 + 9 * 128 + 128 * 64)        =  87,680
        (64, t 4, 128)       64 * 256 + 9 * 256 + 256 * 128           =  51,456
        6 x (128, t 2, 128)  6 (128 * 256 + 9 * 256 + 256 * 128)      = 407,040
        (128, t 4, 128)      128 * 512 + 9 * 512 + 512 * 128          = 135,680
        2 x (128, t 2, 128)  2 * 67,840                               = 135,680
        conv 1x1             128 * 512                                =  65,536
        GDConv 7x7           49 * 512                                 =  25,088
        linear 1x1           512 * 128                                =  65,536
                                                                        976,000

    Channels that are normalised and have a PReLU: 64 + 64 before the bottlenecks, twice e in each,
    512 after them: 128 + 2 (5 * 128 + 256 + 6 * 256 + 512 + 2 * 256) + 512 = 7,552. Normalised
    only: c' in each bottleneck, GDConv and embedding: 5 * 64 + 10 * 128 + 512 + 128 = 2,240. So
    976,000 + 3 * 7,552 + 2 * 2,240 = 1,003,136; the paper says 0.99 million.
    """
    model = build_encoder("mobilefacenet", 128, "relu", (112, 112, 3))
    assert trainable(model) == 976_000 + 3 * 7_552 + 2 * 2_240 == 1_003_136
    assert model.output_shape == (None, 128)
    # 1x1: expansions and projections of each line of the table, and the last one to 512.
    assert convolutions(model, 3) == {(56, 64): 1}
    assert convolutions(model, 1) == {
        (56, 128): 1,
        (28, 128): 4,
        (28, 64): 5,
        (28, 256): 1,
        (14, 256): 6,
        (14, 128): 1 + 6,
        (14, 512): 1,
        (7, 256): 2,
        (7, 128): 1 + 2,
        (7, 512): 1,
    }
    depthwise = [x for x in model.layers if isinstance(x, keras.layers.DepthwiseConv2D)]
    assert [x.kernel_size for x in depthwise] == [(3, 3)] * 16 + [(7, 7)]
    # Residual: 4 of the 5 bottlenecks of the first line, all 6 of the third and 2 of the last.
    assert sum(isinstance(x, keras.layers.Add) for x in model.layers) == 4 + 6 + 2


def test_mobilefacenet_global_depthwise_kernel_follows_the_image():
    model = build_encoder("mobilefacenet", 8, "relu", (64, 48, 1), width=1 / 16)
    kernels = [x.kernel_size for x in model.layers if isinstance(x, keras.layers.DepthwiseConv2D)]
    assert kernels[-1] == (64 // 16, 48 // 16)


def test_resnet101():
    """Deng et al. 2019: 3-13-30-3 improved residual units, output batch norm - dropout - FC - BN.

    A unit from a to c channels: batch norm 2 a, conv 9 a c, batch norm 2 c, PReLU c, conv 9 c c,
    batch norm 2 c; in the first of a stage also the shortcut a c and its batch norm 2 c.

        stem                27 * 64 + 3 * 64                                 =      1,920
        stage 1 (64)        3 units of 18 * 64^2 + 7 * 64 = 74,176
                            + shortcut 64^2 + 2 * 64                         =    226,752
        stage 2 (64 -> 128) first: 128 + 9 * 64 * 128 + 9 * 128^2 + 5 * 128
                            + 64 * 128 + 2 * 128 = 230,400
                            + 12 (18 * 128^2 + 7 * 128)                      =  3,780,096
        stage 3 (-> 256)    first: 256 + 9 * 128 * 256 + 9 * 256^2 + 5 * 256
                            + 128 * 256 + 2 * 256 = 919,552
                            + 29 (18 * 256^2 + 7 * 256)                      = 35,181,312
        stage 4 (-> 512)    first: 512 + 9 * 256 * 512 + 9 * 512^2 + 5 * 512
                            + 256 * 512 + 2 * 512 = 3,674,112
                            + 2 (18 * 512^2 + 7 * 512)                       = 13,118,464
        batch norm          2 * 512                                          =      1,024
        linear, batch norm  7 * 7 * 512 * 512 + 2 * 512                      = 12,846,080
                                                                               65,155,648

    ArcFace's own has a bias of 512 more in its linear map, which the batch norm after it takes
    away again; about 65.2 million is the figure usually given for it.
    """
    model = build_encoder("resnet101", 512, "soft_threshold", (112, 112, 3))
    stages = 226_752 + 3_780_096 + 35_181_312 + 13_118_464
    assert trainable(model) == 1_920 + stages + 1_024 + 12_846_080 == 65_155_648
    assert model.output_shape == (None, 512)
    # The first unit of a stage convolves once before it halves the picture: 2 n - 1 at the new
    # size, and one at the old size with the new channels. 99 in all.
    counts = convolutions(model, 3)
    assert counts == {
        (112, 64): 1 + 1,
        (56, 64): 2 * 3 - 1,
        (56, 128): 1,
        (28, 128): 2 * 13 - 1,
        (28, 256): 1,
        (14, 256): 2 * 30 - 1,
        (14, 512): 1,
        (7, 512): 2 * 3 - 1,
    }
    assert sum(counts.values()) == 99
    assert convolutions(model, 1) == {(56, 64): 1, (28, 128): 1, (14, 256): 1, (7, 512): 1}


def test_nin():
    """Lin et al. 2014, with biases: (k k a + 1) c weights for a convolution from a to c.

        block 1   76 * 192 + 193 * 160 + 161 * 96           =  60,928
        block 2   (25 * 96 + 1) * 192 + 2 * 193 * 192       = 535,104
        block 3   (9 * 192 + 1) * 192 + 193 * 192           = 369,024
                                                              965,056

    With the 1x1 convolution to ten class maps, 193 * 10, this is the 966,986 (0.97 million) of
    the network for CIFAR-10.
    """
    model = build_encoder("nin", 64, "soft_threshold", (32, 32, 3))
    assert trainable(model) == 60_928 + 535_104 + 369_024 + head(192, 64)
    assert model.output_shape == (None, 64)
    assert convolutions(model, 5) == {(32, 192): 1, (16, 192): 1}
    assert convolutions(model, 3) == {(8, 192): 1}
    assert convolutions(model, 1) == {(32, 160): 1, (32, 96): 1, (16, 192): 2, (8, 192): 1}


def test_resnet20():
    """He et al. 2016, section 4.2: 6n + 2 layers with n = 3, shortcuts without weights.

        conv 3x3   27 * 16                                  =     432
        stage 1    6 * 9 * 16^2                             =  13,824
        stage 2    9 * 16 * 32 + 5 * 9 * 32^2               =  50,688
        stage 3    9 * 32 * 64 + 5 * 9 * 64^2               = 202,752
        batch norm 2 (7 * 16 + 6 * 32 + 6 * 64)             =   1,376
                                                              269,072

    With the paper's ten-way classifier, 65 * 10, that is 269,722; the paper says 0.27 million.
    """
    model = build_encoder("resnet20", 64, "none", (32, 32, 3))
    assert trainable(model) == 269_072 + head(64, 64)
    assert model.output_shape == (None, 64)
    assert convolutions(model, 3) == {(32, 16): 7, (16, 32): 6, (8, 64): 6}
    assert convolutions(model, 1) == {}


def test_resnet20_shortcut_takes_every_second_place_and_pads_with_zeros():
    """With its convolutions at zero, a unit is ReLU(shortcut)."""
    model = build_encoder("resnet20", 4, "none", (8, 8, 3))
    adds = [layer for layer in model.layers if isinstance(layer, keras.layers.Add)]
    unit = keras.Model(model.input, [adds[2].output, adds[3].output])  # ends stage 1, begins 2
    for layer in unit.layers:
        if isinstance(layer, keras.layers.BatchNormalization) and layer.gamma.shape == (32,):
            layer.gamma.assign(np.zeros(32))
    before, after = (
        x.numpy() for x in unit(np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("f4"))
    )
    before = np.maximum(before, 0)
    np.testing.assert_array_equal(after[..., :16], before[:, ::2, ::2])
    np.testing.assert_array_equal(after[..., 16:], 0)
    assert before.any()


def test_resnet8():
    """Shortcuts have no weights; 3 * 6 * 128 features of a word.

    conv 5x5   25 * 32                        =     800
    unit 1     2 * 9 * 32^2                   =  18,432
    unit 2     9 * 32 * 64 + 9 * 64^2         =  55,296
    unit 3     9 * 64 * 128 + 9 * 128^2       = 221,184
    batch norm 2 (3 * 32 + 2 * 64 + 2 * 128)  =     960
    """
    model = build_encoder("resnet8", 512, "soft_threshold", (24, 48, 1))
    assert trainable(model) == 800 + 18_432 + 55_296 + 221_184 + 960 + head(2304, 512)
    assert model.output_shape == (None, 512)
    assert convolutions(model, 5) == {(12, 32): 1}
    assert convolutions(model, 3) == {(12, 32): 2, (6, 64): 2, (3, 128): 2}
    assert convolutions(model, 1) == {}


def test_convnet():
    """25 * 24 + 9 * 24 * 48 + 9 * 48 * 96 weights, batch norm, 4 * 4 * 96 features."""
    model = build_encoder("convnet", 512, "relu", (32, 32, 1))
    assert trainable(model) == 600 + 10_368 + 41_472 + 2 * (24 + 48 + 96) + head(1536, 512)
    assert model.output_shape == (None, 512)
    assert convolutions(model, 5) == {(16, 24): 1}
    assert convolutions(model, 3) == {(16, 48): 1, (8, 96): 1}


def test_linear():
    """Batch norm of 128 inputs, then the head."""
    model = build_encoder("linear", 512, "relu", (128,))
    assert trainable(model) == 2 * 128 + head(128, 512)
    assert model.output_shape == (None, 512)


@pytest.mark.parametrize("width", [0.25, 0.5, 2])
def test_width_multiplies_the_channels_but_not_the_embedding(width):
    model = build_encoder("convnet", 24, "relu", (32, 32, 1), width=width)
    assert convolutions(model, 5) == {(16, 24 * width): 1}
    assert convolutions(model, 3) == {(16, 48 * width): 1, (8, 96 * width): 1}
    assert model.output_shape == (None, 24)


def test_haarnet():
    """Weights of the convolutions, each with a batch norm (2 per channel), and of the head.

    Haar 2x2              4 * 3 * 12                   =       144
    block 1 (12 -> 64)    9 * 12 * 64 + 9 * 64^2       =    43,776
    block 2 (64 -> 256)   9 * 64 * 256 + 9 * 256^2     =   737,280
    block 3 (256 -> 256)  2 * 9 * 256^2                = 1,179,648
                                                         1,960,848
    """
    model = build_encoder("haarnet", 64, "none", (32, 32, 3))
    norms = 2 * (12 + 2 * 64 + 4 * 256)
    assert trainable(model) == 1_960_848 + norms + head(256, 64)
    assert convolutions(model, 2) == {(31, 12): 1}
    places = {(31, 64): 1, (15, 64): 1, (15, 256): 1, (7, 256): 2, (3, 256): 1}
    assert convolutions(model, 3) == places


@pytest.mark.parametrize("channels", [1, 3])
def test_haarnet_loses_nothing_of_the_picture(channels):
    """The first layer is orthogonal: it keeps lengths, and its transpose gives the picture back."""
    model = build_encoder("haarnet", 8, "none", (9, 9, channels), width=1 / 16)
    layer = next(x for x in model.layers if isinstance(x, keras.layers.Conv2D))
    images = np.random.default_rng(0).normal(size=(2, 8, 8, channels)).astype("f4")
    blocks = images.reshape(2, 4, 2, 4, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    matrix = layer.get_weights()[0].reshape(4 * channels, 4 * channels)
    back = layer(images).numpy()[:, ::2, ::2] @ matrix.T  # every 2x2 overlaps with the next
    np.testing.assert_allclose(back, blocks.reshape(2, 4, 4, -1), atol=1e-6)
    if channels == 3:  # grey has brightness alone: the first of every three channels
        grey = layer(np.repeat(images[..., :1], 3, axis=-1)).numpy()
        np.testing.assert_allclose(np.delete(grey, [0, 3, 6, 9], axis=-1), 0, atol=1e-6)
