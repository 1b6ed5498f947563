// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/shared_objects.hpp"

#include <catch2/catch.hpp>

using namespace ucclep;

TEST_CASE("a published object is found under its key until it is withdrawn") {
  Token comm = Token::random();
  SharedObjectKey key{comm, 3, 7};
  auto object = std::make_shared<int>(42);
  {
    Publication publication = publish(key, object);
    CHECK(lookup(key) == object);
    CHECK_FALSE(lookup({comm, 3, 8}));
    CHECK_FALSE(lookup({comm, 2, 7}));
    CHECK_FALSE(lookup({Token::random(), 3, 7}));
    Publication moved = std::move(publication);
    publication.withdraw();
    CHECK(lookup(key) == object);
  }
  CHECK_FALSE(lookup(key));
}

TEST_CASE("a reference outlives the publication, and an object may withdraw another as it goes") {
  SharedObjectKey outer{Token::random(), 0, 0};
  SharedObjectKey inner{Token::random(), 0, 1};
  Publication publication = publish(outer, std::make_shared<Publication>(publish(inner, std::make_shared<int>(1))));
  std::shared_ptr<void> reference = lookup(inner);
  publication.withdraw();
  CHECK_FALSE(lookup(outer));
  CHECK_FALSE(lookup(inner));
  CHECK(*static_cast<int*>(reference.get()) == 1);
}
