import hypothesis

# No test asserts a time: an example that takes long on a busy machine is not a failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
