"""The digits net and its training as anybody would write them in plain PyTorch, named like ours."""

import torch.nn.functional as F
from torch import nn


class PlainDigits(nn.Module):
    """ReLU before pooling."""

    def __init__(self, params):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1, self.fc2, self.fc3 = nn.Linear(128, 64), nn.Linear(64, 32), nn.Linear(32, 10)
        self.load_state_dict(params)

    def forward(self, x):
        for convolution in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(convolution(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))

    def groups(self, decay):
        """Parameters as an optimiser takes them: weights with weight decay, biases without."""
        named = [*self.named_parameters()]
        return [
            {"params": [p for n, p in named if n.endswith(end)], "weight_decay": share}
            for end, share in (("weight", decay), ("bias", 0.0))
        ]
