// A node with 100 queue pairs that do nothing, for tests of lists of queue pairs.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {

class HundredQueuePairs : public ::testing::Test {
 protected:
  HundredQueuePairs()
      : wire_(TestDataplane()), node_(TestDataplane(), &wire_, {}), cq_(node_.client(), 16) {
    dataplane::QueuePairConfig config;
    config.send_cq = config.recv_cq = cq_.cq();
    for (int i = 0; i < 100; ++i) {
      apps_.push_back(std::make_unique<AppQp>(node_.client(), config));
    }
  }
  dataplane::QueuePair& qp(size_t i) { return apps_[i]->qp(); }

 private:
  dataplane::Wire wire_;
  Node node_;
  AppCq cq_;
  std::vector<std::unique_ptr<AppQp>> apps_;
};

}  // namespace roci::testing
