// Which pages of a range are converted, and which become private again. page_migration.cc moves
// them. All with the RegistrationLock held.
#pragma once

#include "verbs_provider/memory/conversion_state.h"

namespace roci::provider {

/// Converts the convertible part of `pages`. True if it converted any page.
bool ConvertPages(PageRange pages);
/// Makes the converted memory at `pages` private again, and frees the file's pages.
void RestorePages(PageRange pages);
/// The same for the part of `pages` that no registration covers.
void RestoreUncoveredPages(PageRange pages);

}  // namespace roci::provider
