"""The `convnet` encoder with ArcFace and the relaxed FLOPs, in PyTorch.

Only for `benchmark_training`, which compares the speed of both. Needs `pip install torch`.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sparse_embed.flags.train_config import ObjectiveConfig


class ArcFaceConvnet(nn.Module):
    """Images to embeddings of unit norm, and cosines between them and the classes.

    Args:
        channels: channels of the three convolutions.
        size: height and width of the images, which have one channel.
        embedding_dim: dimension of the embeddings.
        num_classes: number of classes.
    """

    def __init__(self, channels: list[int], size: int, embedding_dim: int, num_classes: int):
        super().__init__()
        one, two, three = channels
        norm = {"eps": 1e-3, "momentum": 0.1}  # Keras' epsilon, and 1 - our momentum
        # Keras pads "same" on the right side first: 1 and 2 pixels for 5x5 with stride 2.
        self.encoder = nn.Sequential(
            nn.ZeroPad2d((1, 2, 1, 2)),
            nn.Conv2d(1, one, 5, stride=2, bias=False),
            nn.BatchNorm2d(one, **norm),
            nn.ReLU(),
            nn.Conv2d(one, two, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(two, **norm),
            nn.ReLU(),
            nn.Conv2d(two, three, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(three, **norm),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(three * (size // 8) ** 2, embedding_dim, bias=False),
            nn.BatchNorm1d(embedding_dim, **norm),
            nn.ReLU(),
        )
        self.class_weights = nn.Parameter(0.01 * torch.randn(embedding_dim, num_classes))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns embeddings (batch, d) and cosines (batch, num_classes)."""
        embeddings = functional.normalize(self.encoder(images))
        return embeddings, embeddings @ functional.normalize(self.class_weights, dim=0)


def arcface(
    labels: torch.Tensor, cosines: torch.Tensor, margin: float, scale: float
) -> torch.Tensor:
    """Returns the mean loss, as `sparse_embed.losses.arcface` defines it."""
    target = cosines.gather(1, labels[:, None]).clamp(-1, 1)
    sine = torch.sqrt((1 - target * target).clamp_min(1e-7))
    with_margin = torch.where(
        target >= -math.cos(margin),
        target * math.cos(margin) - sine * math.sin(margin),
        target - margin * math.sin(margin),
    )
    logits = scale * cosines.scatter(1, labels[:, None], with_margin)
    return functional.cross_entropy(logits, labels)


class Trainer:
    """Takes steps with Adam on one batch.

    Args:
        model: the model to train.
        images: (batch, height, width, 1) array.
        labels: (batch,) array.
        objective: margin, scale and weight.
        learning_rate: learning rate of Adam.
    """

    def __init__(
        self,
        model: ArcFaceConvnet,
        images: np.ndarray,
        labels: np.ndarray,
        objective: ObjectiveConfig,
        learning_rate: float,
    ):
        self._model = model.to(memory_format=torch.channels_last)
        self._images = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        self._labels = torch.from_numpy(labels.astype(np.int64))
        self._objective = objective
        self._optimizer = torch.optim.Adam(model.parameters(), learning_rate)

    def step(self) -> float:
        """Takes one step and returns the loss before it."""
        embeddings, cosines = self._model(self._images)
        objective = self._objective
        loss = arcface(self._labels, cosines, objective.margin, objective.scale)
        penalty = embeddings.abs().mean(0).square().sum()
        loss = loss + objective.regularizer_weight * penalty
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()
