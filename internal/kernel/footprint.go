package kernel

import "github.com/millstream/millstream/internal/cell"

// Footprint returns a function that estimates the bytes that values of A refer to, for Aggregation.Size; nil if there
// are none.
func Footprint[A any]() func(*A) int { return cell.Footprint[A]() }
