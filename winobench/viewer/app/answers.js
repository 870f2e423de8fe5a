// What a row of an examples' table means: the question, its candidates, and the answer. Used by pages and by the worker.

// A row in one form. Candidates are cells of a matrix of scores (images by texts, or one row of options); cells have flat
// numbers. target: the cell that is right, or null for squares, whose right cells follow from the metric.
export function question(row) {
  if ('options' in row) {
    const texts = Object.entries(row.texts ?? {})
    return {
      ...row, isText: true, named: texts, target: row.answer ?? null, chosen: row.choice ?? null,
      scores: row.scores?.length ? [row.scores] : null, images: [], texts: row.options,
    }
  }
  return { ...row, isText: false, target: row.target ?? null, chosen: row.prediction ?? null }
}

// A question as people read it.
export function textOf(asked) {
  if (!asked.isText) return asked.texts.join(' / ')
  const named = Object.fromEntries(asked.named)
  return named.question ?? asked.named.map(([, text]) => text).join(' / ')
}

// Whether a cell belongs together in a question without a target.
export const belongs = (image, text, metric) => (metric === 'all_answers' ? text % 2 === image : image === text)

// Pairs of cells [right, wrong] that the metric compares: the answer is right if each right one scores higher.
export function comparisons({ target, scores, correct }, metric) {
  if (!scores?.length) return []
  const [images, texts] = [scores.length, scores[0].length]
  const cells = [...Array(images * texts).keys()]
  if (target !== null) {
    if (metric === 'all_true') return cells.slice(0, -1).map(cell => [cell, cells.length - 1])
    return cells.filter(cell => cell !== target).map(cell => [target, cell])
  }
  if (correct === null || correct === undefined) return []
  const isSquare = images === texts
  const found = []
  for (let image = 0; image < images; image++) {
    for (let text = 0; text < texts; text++) {
      if (!belongs(image, text, metric)) continue
      const right = image * texts + text
      if (metric === 'all_answers') {
        found.push([right, image * texts + (text ^ 1)])
        continue
      }
      if (metric !== 'winoground_image') for (let other = 0; other < texts; other++) if (other !== text) found.push([right, image * texts + other])
      if (metric !== 'own_texts' && isSquare) for (let other = 0; other < images; other++) if (other !== image) found.push([right, other * texts + text])
    }
  }
  return found
}

// The comparison that is nearest to be lost, or lost by most: { right, wrong, margin }; null where nothing is right.
export function closest(asked, metric) {
  const flat = asked.scores?.flat() ?? []
  let least = null
  for (const [right, wrong] of comparisons(asked, metric)) {
    const margin = flat[right] - flat[wrong]
    if (!Number.isFinite(margin)) return null
    if (!least || margin < least.margin) least = { right, wrong, margin }
  }
  return least
}

// The score of the right answer minus that of the best wrong one: positive where the answer is right, 0 for a tie.
export function margin(asked, metric) {
  const { target, scores } = asked
  if (target === null || metric === 'all_true') return closest(asked, metric)?.margin ?? null
  // The common case without lists, for whole tables.
  if (!scores?.length) return null
  let [own, best, cell] = [NaN, -Infinity, 0]
  for (const line of scores) {
    for (const score of line) {
      if (!Number.isFinite(score)) return null
      if (cell === target) own = score
      else if (score > best) best = score
      cell += 1
    }
  }
  return cell > 1 ? own - best : null
}

export const MARGIN = 'The margin is the score of the right answer minus that of the best wrong one. It is positive for right answers and 0 for ties. '
  + 'A square of images and texts has the smallest margin of all comparisons that its metric makes.'

// "right", "tie", "wrong", "failed" (the call failed), "unread" (no answer could be read), or null without a right answer.
export function verdict({ correct, tie, status }) {
  if (status === 'failed') return 'failed'
  if (correct) return 'right'
  if (status && status !== 'answered') return 'unread'
  if (tie) return 'tie'
  return correct === false ? 'wrong' : null
}

export const VERDICTS = {
  right: ['✓', 'right'],
  wrong: ['✗', 'wrong'],
  tie: ['=', 'tie, counts as wrong'],
  unread: ['?', 'no answer could be read, counts as wrong'],
  failed: ['!', 'the call failed, not counted'],
}

// The model's answer as a cell; null for ties, squares and where there is none.
export function answered(asked) {
  if (asked.target === null && !asked.isText) return null
  return asked.chosen
}

// Whether rows of two runs asked the same.
export const asksSame = (one, other) =>
  one.id === other.id && one.target === other.target && same(one.images, other.images) && same(one.texts, other.texts)
  && (!one.isText || same(one.named.flat(), other.named.flat()))

const same = (one, other) => one.length === other.length && one.every((value, place) => value === other[place])

// The columns that `question` needs for a list of questions.
export const LISTED = ['id', 'groups', 'images', 'texts', 'target', 'scores', 'prediction', 'correct', 'tie', 'options', 'answer', 'choice', 'status', 'pictures']

// A candidate's short name.
export function cellName(asked, cell) {
  if (asked.isText) return `option ${cell + 1}`
  const texts = asked.texts.length
  if (asked.target === null && asked.images.length > 1 && texts > 1) return `image ${Math.floor(cell / texts) + 1}, text ${(cell % texts) + 1}`
  return texts > 1 ? `text ${cell + 1}` : `image ${cell + 1}`
}

// A score's size, in three digits.
export function amount(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  return (size >= 100 ? size.toFixed(0) : size === 0 ? '0' : size.toPrecision(3))
}

export const signed = value => (value === null || value === undefined || !Number.isFinite(value) ? '–' : `${value < 0 ? '−' : value > 0 ? '+' : ''}${amount(value)}`)
export const scored = value => (value === null || value === undefined || !Number.isFinite(value) ? '–' : `${value < 0 ? '−' : ''}${amount(value)}`)
