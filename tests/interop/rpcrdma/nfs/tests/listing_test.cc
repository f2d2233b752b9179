// READDIR and READDIRPLUS.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"
#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

// A part of a listing.
struct Part {
  Status status;
  std::vector<std::pair<std::string, uint64_t>> entries;  // name, cookie
  bool end = false;
  size_t bytes = 0;  // of the result, without the status
  Verifier verifier{};
};

class Listings : public ::testing::Test {
 protected:
  void MakeFiles(int count) {
    for (int i = 0; i < count; ++i) Put(client_.PathOf("file " + std::to_string(i)), "");
  }

  Part List(const FileHandle& folder, uint64_t cookie, const Verifier& verifier, uint32_t count) {
    ReaddirArguments arguments{ToHandle(folder), cookie, {}, count};
    std::memcpy(arguments.verifier, verifier, sizeof verifier);
    Answered answered = client_.Call(Nfs::kReaddir, xdr_ReaddirArguments, arguments);
    Part part{answered.TakeStatus(), {}};
    part.bytes = answered.results().Rest().size();
    if (part.status != Status::kOk) return part;
    std::memcpy(part.verifier, answered.results().Take(xdr_ReaddirHead)->verifier,
                sizeof part.verifier);
    while (*answered.results().Take(xdr_bool)) {
      const auto entry = answered.results().Take(xdr_ReaddirEntry);
      part.entries.emplace_back(std::string(entry->name.Name_val, entry->name.Name_len),
                                entry->cookie);
    }
    part.end = *answered.results().Take(xdr_bool) != 0;
    EXPECT_TRUE(answered.results().Rest().empty());
    return part;
  }

  // Lists all in parts; `between` is called with the number of names seen.
  template <class Between>
  std::multiset<std::string> ListAll(uint32_t count, Between between) {
    std::multiset<std::string> names;
    Part part{};
    for (uint64_t cookie = 0; !part.end; cookie = part.entries.back().second) {
      Verifier verifier;
      std::memcpy(verifier, part.verifier, sizeof verifier);
      part = List(client_.Root(), cookie, verifier, count);
      EXPECT_EQ(part.status, Status::kOk);
      EXPECT_LE(part.bytes, count);
      for (const auto& [name, next] : part.entries) names.insert(name);
      if (part.end || part.entries.empty()) break;
      between(names.size());
    }
    EXPECT_TRUE(part.end);
    return names;
  }

  TestClient client_;
};

TEST_F(Listings, ShowEveryEntryOnce) {
  MakeFiles(500);
  for (const uint32_t count : {150u, 512u, 4096u, 0xffffffffu}) {
    const auto names = ListAll(count, [](size_t) {});
    EXPECT_EQ(names.size(), 502u);
    EXPECT_EQ(std::set(names.begin(), names.end()).size(), 502u);
    EXPECT_EQ(names.count("."), 1u);
    EXPECT_EQ(names.count(".."), 1u);
    EXPECT_EQ(names.count("file 499"), 1u);
  }
}

TEST_F(Listings, LoseNothingWhileEntriesComeAndGo) {
  MakeFiles(300);
  std::set<std::string> kept;
  for (int i = 0; i < 300; i += 2) kept.insert("file " + std::to_string(i));
  int next = 1;
  const auto names = ListAll(512, [&](size_t) {
    for (int i = 0; i < 10 && next < 300; ++i, next += 2)
      fs::remove(client_.PathOf("file " + std::to_string(next)));
    Put(client_.PathOf("new " + std::to_string(next)), "");
  });
  for (const std::string& name : kept) EXPECT_EQ(names.count(name), 1u) << name;
}

TEST_F(Listings, GoOnAfterARestart) {
  MakeFiles(20);
  const auto names = ListAll(300, [&](size_t) { client_.Restart(); });
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), 22u);
  EXPECT_EQ(names.size(), 22u);
}

TEST_F(Listings, RefuseCookiesOfAnotherListing) {
  MakeFiles(20);
  const Part first = List(client_.Root(), 0, {}, 300);
  ASSERT_FALSE(first.end);
  Verifier wrong;
  std::memcpy(wrong, first.verifier, sizeof wrong);
  wrong[7] = static_cast<char>(wrong[7] ^ 1);
  EXPECT_EQ(List(client_.Root(), first.entries.back().second, wrong, 300).status,
            Status::kBadCookie);
  EXPECT_EQ(List(client_.Root(), 0, wrong, 300).status, Status::kOk);
}

TEST_F(Listings, TakeAnyCookie) {
  MakeFiles(3);
  const Part all = List(client_.Root(), 0, {}, 4096);
  for (const uint64_t cookie :
       {uint64_t{1}, uint64_t{3}, uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}}) {
    const Part part = List(client_.Root(), cookie, all.verifier, 4096);
    EXPECT_EQ(part.status, Status::kOk);
    EXPECT_TRUE(part.end);
  }
}

TEST_F(Listings, SayWhenNothingFits) {
  MakeFiles(1);
  for (const uint32_t count : {0u, 1u, 100u, 120u})
    EXPECT_EQ(List(client_.Root(), 0, {}, count).status, Status::kTooSmall);
}

TEST_F(Listings, AreOfFoldersOnly) {
  MakeFiles(1);
  EXPECT_EQ(List(client_.At("file 0"), 0, {}, 4096).status, Status::kNotFolder);
}

TEST_F(Listings, TellTheRootAsItsOwnParent) {
  Answered answered = client_.Call(Nfs::kReaddir, xdr_ReaddirArguments,
                                   ReaddirArguments{ToHandle(client_.Root()), 0, {}, 4096});
  ASSERT_EQ(answered.TakeStatus(), Status::kOk);
  answered.results().Take(xdr_ReaddirHead);
  const uint64_t root = client_.Getattr(client_.Root()).file_id;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(*answered.results().Take(xdr_bool));
    EXPECT_EQ(answered.results().Take(xdr_ReaddirEntry)->file_id, root);
  }
}

class ListingsPlus : public Listings {
 protected:
  struct Described {
    uint64_t cookie = 0;
    bool has_handle = false;
    FileHandle handle;
    uint64_t size = 0;
  };
  struct PlusPart {
    Status status;
    std::map<std::string, Described> entries;
    bool end = false;
    size_t bytes = 0;
  };

  PlusPart ListPlus(uint32_t names, uint32_t all) {
    Answered answered =
        client_.Call(Nfs::kReaddirplus, xdr_ReaddirplusArguments,
                     ReaddirplusArguments{ToHandle(client_.Root()), 0, {}, names, all});
    PlusPart part{answered.TakeStatus(), {}};
    part.bytes = answered.results().Rest().size();
    if (part.status != Status::kOk) return part;
    answered.results().Take(xdr_ReaddirHead);
    while (*answered.results().Take(xdr_bool)) {
      const auto entry = answered.results().Take(xdr_ReaddirplusEntry);
      Described& described = part.entries[{entry->entry.name.Name_val, entry->entry.name.Name_len}];
      described.cookie = entry->entry.cookie;
      described.has_handle = entry->handle.follow != 0;
      if (!described.has_handle) continue;
      std::copy_n(entry->handle.PostHandle_u.handle.Handle_val, kHandleBytes,
                  described.handle.begin());
      EXPECT_TRUE(entry->attributes.follow);
      described.size = entry->attributes.PostAttributes_u.attributes.size;
    }
    part.end = *answered.results().Take(xdr_bool) != 0;
    return part;
  }
};

TEST_F(ListingsPlus, GiveHandlesAndAttributes) {
  Put(client_.PathOf("file"), "12345");
  fs::create_directory(client_.PathOf("folder"));
  PlusPart part = ListPlus(4096, 8192);
  ASSERT_EQ(part.status, Status::kOk);
  EXPECT_TRUE(part.end);
  ASSERT_EQ(part.entries.size(), 4u);
  EXPECT_EQ(part.entries["file"].size, 5u);
  EXPECT_EQ(client_.Read(part.entries["file"].handle, 0, 10), "12345");
  EXPECT_EQ(part.entries["folder"].handle, client_.At("folder"));
  EXPECT_EQ(part.entries["."].handle, client_.Root());
  EXPECT_FALSE(part.entries[".."].has_handle);
}

TEST_F(ListingsPlus, ObeyBothLimits) {
  MakeFiles(200);
  for (const uint32_t all : {512u, 4096u, 0xffffffffu}) {
    const PlusPart part = ListPlus(0xffffffff, all);
    EXPECT_EQ(part.status, Status::kOk);
    EXPECT_LE(part.bytes, std::min(all, kMaxListingBytes));
    EXPECT_GT(part.bytes, std::min<size_t>(all / 2, 10000));
  }
  const PlusPart few = ListPlus(256, 0xffffffff);
  EXPECT_LE(few.entries.size(), 10u);
  EXPECT_GE(few.entries.size(), 5u);
  EXPECT_FALSE(few.end);
  EXPECT_EQ(ListPlus(4096, 100).status, Status::kTooSmall);
}

}  // namespace
}  // namespace rpcrdma
