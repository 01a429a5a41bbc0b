"""The base of the settings, instead of the file of the image, which would generate a key for each pod."""

import os

SECRET_KEY = os.environ["SECRET_KEY"]
