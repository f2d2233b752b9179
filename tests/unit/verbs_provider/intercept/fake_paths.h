// Paths of the libraries that intercept_test.cc loads.
#pragma once

extern const char* const kFakeCmPath;
extern const char* const kFakeLazyPath;
