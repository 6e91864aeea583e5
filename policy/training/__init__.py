"""Training a language model on what campaigns found: SFT, DPO and reinforcement learning, through TRL and PEFT.

`session.finetune` is the whole of it. Only modules that say so in their first line import torch, TRL or PEFT, and
nothing outside of this folder imports those.
"""
