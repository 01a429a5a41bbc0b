//! Nothing of its own: the package is its test.
