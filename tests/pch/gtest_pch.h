// Precompiled for test programs of many files.
#include <gtest/gtest.h>
