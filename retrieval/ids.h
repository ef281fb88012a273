// Which id each row has.
//
// A row is numbered by its place in the blocks; its id is the caller's. Between the two stands its
// rank: the place of its id among the ids of all rows, in rising order.
//
//     row -- rank() --> rank -- id() --> id      id -- find() --> rank -- row() --> row
//
// Results are compared by rank: it has 32 bits and orders as ids do, so that ties go to the lower id
// wherever in the blocks a row lies. A step that is the identity takes no memory: where ids rise with
// the rows there are no ranks, and where they are 0, 1, 2, ... there is nothing at all.
//
// The id of a removed row may be given to another row. Equal ids are next to each other in order of
// their rows, and only the last of them can be there still.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sparse_embed {

class Ids {
 public:
  uint64_t size() const { return size_; }
  // The id that the next row gets if the caller has no other wish: it was never given to any row.
  uint64_t next() const { return next_; }
  const int64_t* sorted() const { return sorted_; }  // ids by rank, or null
  const uint32_t* rows() const { return rows_; }     // rows by rank, or null
  const uint32_t* ranks() const { return ranks_; }   // ranks by row, or null

  uint32_t rank(uint32_t row) const { return ranks_ ? ranks_[row] : row; }
  uint32_t row(uint32_t rank) const { return rows_ ? rows_[rank] : rank; }
  int64_t id(uint32_t rank) const { return sorted_ ? sorted_[rank] : int64_t(rank); }
  uint64_t nbytes() const {
    return size_ * ((sorted_ ? sizeof(int64_t) : 0) + (rows_ ? 2 * sizeof(uint32_t) : 0));
  }

  // The last row that got this id, or -1.
  int64_t find(int64_t id) const {
    if (!sorted_) return id >= 0 && uint64_t(id) < size_ ? int64_t(row(uint32_t(id))) : -1;
    const int64_t* above = std::upper_bound(sorted_, sorted_ + size_, id);
    if (above == sorted_ || above[-1] != id) return -1;
    return int64_t(row(uint32_t(above - sorted_ - 1)));
  }

  // These ids, and those of `count` rows that follow: the next ones, or `more` unless it is null.
  // Throws if an id comes twice, with a message that begins with `holds`; `living(row)` tells whether
  // a row was not removed.
  template <class Living>
  Ids extended(const int64_t* more, uint64_t count, Living living, const char* holds) const {
    if (!more && count > uint64_t(INT64_MAX) + 1 - next_) {
      throw std::invalid_argument("no ids are left after the largest: expected ids for the rows");
    }
    if (continues(more, count)) {
      Ids ids(*this);
      ids.size_ += count;
      ids.next_ = std::max(next_, ids.size_);
      return ids;
    }
    std::vector<int64_t> following;
    if (!more) {
      following.resize(count);
      std::iota(following.begin(), following.end(), int64_t(next_));
      more = following.data();
    }
    return merged(more, count, living, holds);
  }

  // The ids of the rows that `living` keeps, numbered anew without gaps.
  template <class Living>
  Ids compacted(Living living) const {
    std::vector<uint32_t> new_rows(size_);
    uint32_t kept = 0;
    for (uint64_t row = 0; row < size_; ++row) {
      new_rows[row] = kept;
      kept += living(uint32_t(row));
    }
    Arrays arrays(kept);
    uint64_t at = 0;
    for (uint64_t r = 0; r < size_; ++r) {
      if (living(row(uint32_t(r)))) arrays.put(at++, id(uint32_t(r)), new_rows[row(uint32_t(r))]);
    }
    return Ids(std::move(arrays), next_);
  }

  // These ids, with a `next` that is not below another one.
  Ids followed_by(uint64_t next) const {
    Ids ids(*this);
    ids.next_ = std::max(next_, next);
    return ids;
  }

  // Ids in memory of unknown origin, which `owner` keeps; throws if they cannot be those of `size`
  // rows. Pointers may be null as above.
  template <class Living>
  static Ids open(uint64_t size, uint64_t next, const int64_t* sorted, const uint32_t* rows,
                  const uint32_t* ranks, std::shared_ptr<const void> owner, Living living) {
    auto require = [](bool condition, const char* message) {
      if (!condition) throw std::invalid_argument(message);
    };
    Ids ids;
    ids.size_ = size;
    ids.next_ = next;
    ids.sorted_ = sorted;
    ids.rows_ = rows;
    ids.ranks_ = ranks;
    ids.owner_ = std::move(owner);
    require(!rows == !ranks, "the order of the rows is incomplete");
    for (uint64_t r = 0; rows && r < size; ++r) {
      require(rows[r] < size && ranks[rows[r]] == r, "the order of the rows is damaged");
    }
    for (uint64_t r = 0; sorted && r < size; ++r) {
      require(sorted[r] >= (r ? sorted[r - 1] : 0), "the ids do not rise");
      require(r == 0 || sorted[r] != sorted[r - 1] || !living(ids.row(uint32_t(r - 1))),
              "two rows have the same id");
    }
    require(next <= uint64_t(INT64_MAX) + 1 &&
                (size == 0 || next > uint64_t(ids.id(uint32_t(size - 1)))),
            "the next id has been given out");
    return ids;
  }

  Ids() = default;

 private:
  struct Arrays {
    std::vector<int64_t> sorted;
    std::vector<uint32_t> rows, ranks;

    explicit Arrays(uint64_t size) : sorted(size), rows(size), ranks(size) {}
    void put(uint64_t rank, int64_t id, uint32_t row) {
      sorted[rank] = id;
      rows[rank] = row;
      ranks[row] = uint32_t(rank);
    }
  };

  // Keeps what is not the identity.
  Ids(Arrays arrays, uint64_t next) : size_(arrays.sorted.size()), next_(next) {
    auto drop_identity = [](auto& places) {
      for (uint64_t i = 0; i < places.size(); ++i) {
        if (uint64_t(places[i]) != i) return;
      }
      std::decay_t<decltype(places)>().swap(places);
    };
    drop_identity(arrays.sorted);
    drop_identity(arrays.rows);
    if (arrays.rows.empty()) std::vector<uint32_t>().swap(arrays.ranks);
    if (size_ > 0) next_ = std::max(next_, uint64_t(last_of(arrays, size_)) + 1);
    const auto kept = std::make_shared<const Arrays>(std::move(arrays));
    sorted_ = kept->sorted.empty() ? nullptr : kept->sorted.data();
    rows_ = kept->rows.empty() ? nullptr : kept->rows.data();
    ranks_ = kept->ranks.empty() ? nullptr : kept->ranks.data();
    owner_ = kept;
  }
  static int64_t last_of(const Arrays& arrays, uint64_t size) {
    return arrays.sorted.empty() ? int64_t(size) - 1 : arrays.sorted.back();
  }

  // Whether there is nothing to store: ids are the numbers of rows, also those of the rows to come.
  bool continues(const int64_t* more, uint64_t count) const {
    if (sorted_ || rows_) return false;
    if (!more) return next_ == size_ || count == 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (uint64_t(more[i]) != size_ + i) return false;
    }
    return true;
  }

  template <class Living>
  Ids merged(const int64_t* more, uint64_t count, Living living, const char* holds) const {
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    if (!std::is_sorted(more, more + count)) {
      std::stable_sort(order.begin(), order.end(),
                       [more](uint32_t a, uint32_t b) { return more[a] < more[b]; });
    }
    refuse_duplicates(more, order, living, holds);
    Arrays arrays(size_ + count);
    uint64_t old = 0, at = 0;
    for (const uint32_t place : order) {
      // A removed row of the same id comes first: it has the lower number.
      for (; old < size_ && id(uint32_t(old)) <= more[place]; ++old) {
        arrays.put(at++, id(uint32_t(old)), row(uint32_t(old)));
      }
      arrays.put(at++, more[place], uint32_t(size_ + place));
    }
    for (; old < size_; ++old) arrays.put(at++, id(uint32_t(old)), row(uint32_t(old)));
    return Ids(std::move(arrays), next_);
  }

  // Throws, naming the first id that another row has: one of the index, or one before it in `more`.
  template <class Living>
  void refuse_duplicates(const int64_t* more, const std::vector<uint32_t>& order,
                         Living living, const char* holds) const {
    uint64_t first = order.size();
    bool twice = false;
    for (uint64_t i = 0; i < order.size(); ++i) {
      const int64_t id = more[order[i]];
      const bool again = i > 0 && more[order[i - 1]] == id;
      if (order[i] >= first || !(again || is_living(id, living))) continue;
      first = order[i];
      twice = again;
    }
    if (first == order.size()) return;
    throw std::invalid_argument(holds + std::to_string(more[first]) +
                                (twice ? " twice: expected each id once"
                                       : ", which a row of the index has: expected other ids"));
  }

  template <class Living>
  bool is_living(int64_t id, Living living) const {
    const int64_t row = find(id);
    return row >= 0 && living(uint32_t(row));
  }

  uint64_t size_ = 0, next_ = 0;
  const int64_t* sorted_ = nullptr;
  const uint32_t* rows_ = nullptr;
  const uint32_t* ranks_ = nullptr;
  std::shared_ptr<const void> owner_;  // of the three
};

}  // namespace sparse_embed
