// The memfd that converted pages live in, and whether this process can move pages there. All with
// the RegistrationLock held.
#pragma once

#include "verbs_provider/memory/conversion_state.h"
#include "verbs_provider/memory/maps_reader.h"
#include "verbs_provider/memory/page_migration.h"

namespace roci::provider {

/// The descriptors for a migration, as they are now.
MigrationFiles ConversionFiles();
/// False: there is no file, or the program has closed the descriptor, as programs do that close all
/// unknown descriptors.
bool ConversionFileIsOurs();
/// Whether a mapping is of the file.
bool IsConverted(const MapsLine& line);
/// The file pages that a mapping of the file shows. A page's offset is the address at which it was
/// converted; the program may have moved the mapping with mremap since.
PageRange FilePagesOf(const MapsLine& line);
/// Creates the file if need be. The first call tries a migration, and later calls return its
/// result.
bool CanConvertLocked();

}  // namespace roci::provider
