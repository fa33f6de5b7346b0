"""A stand-in for a CUDA or an MPS device: a CPU build of torch shows what a GPU would refuse or wait for.

Its tensors say that they are on cuda:0 or mps:0 and hold real numbers. They don't mix with the CPU's, give no
numpy array, take no generator of the CPU, and note what the host would wait for: values it reads, copies from
memory that isn't pinned. On mps:0 they refuse float64 and operations without a kernel for MPS. It changes
torch for a whole process, so it lives in one of its own:

    python -m tests.support.standin --help

What it can't show: whether a kernel exists on CUDA, what a kernel of MPS computes, streams that overlap,
NCCL, time.
"""
