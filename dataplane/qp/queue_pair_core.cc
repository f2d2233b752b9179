// The transport core compiled for the dataplane's queue pairs.
#include "dataplane/qp/queue_pair_host.h"
#include "roce/qp_inl.h"

template class roci::roce::Qp<roci::dataplane::QueuePairHost>;
