import signal

import hypothesis

# The files that take longest go first, so that no process is left with one of them in the end.
LONGEST = (
    "test_multi_device.py",
    "test_cifar100.py",
    "test_readme.py",
    "test_replicas.py",
    "test_kills.py",
    "test_train.py",
    "test_multi_worker.py",
)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


# In the background of a shell's script SIGINT is ignored, and would be in all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asserts a time: an example that takes long on a busy machine is not a failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
