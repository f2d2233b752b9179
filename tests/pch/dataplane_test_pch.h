// Precompiled for the tests of dataplane/.
#include <gtest/gtest.h>

#include "dataplane/pch/dataplane_pch.h"
