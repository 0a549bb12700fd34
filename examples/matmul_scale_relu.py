import torch
import torch.nn as nn

M = 1024
K = 2048
N = 512
SCALE = 0.125


class Model(nn.Module):
    def __init__(self, scale):
        super(Model, self).__init__()
        self.scale = scale

    def forward(self, a, b):
        c = a @ b
        c = c * self.scale
        return c.relu()


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return [SCALE]
