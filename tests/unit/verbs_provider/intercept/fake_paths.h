// Where the libraries lie that intercept_test.cc loads; as tests/source_paths.h.
#pragma once

extern const char* const kFakeCmPath;
extern const char* const kFakeLazyPath;
