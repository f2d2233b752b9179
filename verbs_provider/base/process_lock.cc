// A statically initialised mutex.
#include "verbs_provider/base/process_lock.h"

#include <pthread.h>

namespace roci::provider {
namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

ProcessLock::ProcessLock() { pthread_mutex_lock(&mutex); }
ProcessLock::~ProcessLock() { pthread_mutex_unlock(&mutex); }
void ProcessLock::BeforeFork() { pthread_mutex_lock(&mutex); }
void ProcessLock::AfterFork() { pthread_mutex_unlock(&mutex); }

}  // namespace roci::provider
