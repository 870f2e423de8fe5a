// One question: its candidates and scores, the evidence behind them, and what other runs answered.

import { count, html, link, Loaded, number, useData, useEffect, useKeys, useRef, useState, useTitle, words } from '../base.js'
import { MARGIN, amount, answered, asksSame, belongs, cellName, closest, comparisons, margin, question, scored, signed, textOf } from '../answers.js'
import { cellsOf, comparedCells, decisions, isOfRace, isReproduced, less, mean, shownCells } from '../evidence.js'
import { ByTimestep, Decisions, Differences, Running, Strips, plotting } from '../figures.js'
import { Picture, SHOWN_RUNS, Verdict, cellText, othersWith, taskOf } from '../parts.js'
import * as search from '../search.js'
import * as source from '../source.js'
import { Table } from '../tables.js'

const go = address => { location.hash = address }

const FIRST_CANDIDATES = 10
const DRAWN_CANDIDATES = 6

plotting().catch(() => {}) // Figures need it, and say so where it fails.

async function readRow(slug, task, place) {
  const [row] = await search.neighbours({ slug, task, from: place, to: place + 1 })
  if (!row) throw new Error(`The task has no question of this number: the last one is ${(await source.examples(slug, task)).rows - 1}.`)
  return row
}

export default function Question({ slug, task, row, parameters }) {
  const place = /^\d{1,9}$/.test(row ?? '') ? Number(row) : null
  const state = useData(async () => {
    if (place === null) throw new Error(`“${row ?? ''}” is no number of a question: the first one is 0.`)
    const loading = source.run(slug)
    const errors = loading.then(({ tasks }) => (tasks[task]?.has_errors && place < tasks[task].rows ? source.errors(slug, task, place) : null))
    errors.catch(() => {}) // The section of the errors says it.
    const [run, stored] = await Promise.all([loading, readRow(slug, task, place).catch(error => ({ error }))])
    const about = taskOf(run, task)
    if (stored.error) throw stored.error
    return { run, about, stored, errors, asked: question(stored) }
  }, [slug, task, place])
  useTitle(`Question ${row} of ${state.value?.about.label ?? task}, ${state.value?.run.label ?? slug}`)
  return html`${state.error && html`<h1>Question ${row} of ${task}</h1>`}<${Loaded} state=${state} what="the question">${found => html`<${Shown} ...${found} slug=${slug} task=${task} place=${place} parameters=${parameters} />`}<//>`
}

function Shown({ run, about, stored, errors, asked, slug, task, place, parameters }) {
  const { metric } = about
  const near = closest(asked, metric)
  const evidence = useData(async () => {
    const found = await errors
    if (!found || !asked.scores) return null
    const cells = cellsOf(found, about.weights)
    return { found, cells, isExact: !about.raced || isOfRace(asked, cells) }
  }, [])
  const others = useData(() => evidence.loading ? null : readOthers({ slug, task, place, asked, named: (parameters.with ?? '').split(',').filter(Boolean) }), [evidence.loading, parameters.with])
  const isComplete = Boolean(others.value || others.error)
  return html`
    <p class="path"><a href=${link(['run', slug])}>${run.label}</a> › <a href=${link(['questions', slug, task], { with: parameters.with })}>${about.label}</a></p>
    <h1 class=${textOf(asked).length > 90 ? 'long-title' : ''}>${textOf(asked) || asked.id}</h1>
    <p class="about"><${Verdict} row=${asked} withWords />${near && html`<span>${near.margin === 0 ? 'tied' : `by ${amount(Math.abs(near.margin))}`}</span>`}
      <span>question ${count(place)} of ${count(about.rows)}</span><span>${asked.id}</span>
      ${(asked.groups ?? []).map(group => html`<a href=${link(['questions', slug, task], { group })}>${words(group)}</a>`)}</p>
    <${Steps} slug=${slug} task=${task} place=${place} rows=${about.rows} carried=${{ with: parameters.with }} hasWrong=${typeof asked.correct === 'boolean'} />
    ${asked.isText ? html`<${Words} asked=${asked} slug=${slug} task=${task} about=${about} place=${place} isComplete=${isComplete} />` : html`<${Candidates} asked=${asked} slug=${slug} task=${task} about=${about} />`}
    ${near && html`<p class="note">${MARGIN}</p>`}
    ${about.has_errors && html`<h2>Evidence</h2><${Loaded} state=${evidence} what="the errors of the samples">${value => value
      ? html`<${Evidence} ...${value} asked=${asked} about=${about} name=${`${task}-${place}`} />`
      : html`<p class="empty">The run has no complete errors of this question.</p>`}<//>`}
    <h2>Other runs</h2>
    <${Loaded} state=${others} what="the answers of other runs">${value => value ? html`<${Others} found=${value} own=${{ run, asked, metric }} slug=${slug} task=${task} place=${place} />` : html`<p class="waiting">Waiting for the errors…</p>`}<//>
    ${about.kind !== 'bias' && about.kind !== 'rated' && html`<h2>Similar failures</h2><${Similar} slug=${slug} task=${task} place=${place} metric=${metric} isComplete=${isComplete} />`}
    <h2>The row</h2>
    <${Row} stored=${stored} id=${asked.id} />`
}

function Steps({ slug, task, place, rows, carried, hasWrong }) {
  const [problem, setProblem] = useState(null)
  const to = row => link(['question', slug, task, row], carried)
  const wrong = () => search.nextWrong({ slug, task, row: place }).then(
    row => (row === null ? setProblem('No other question of the task is wrong.') : go(to(row))),
    error => setProblem(error.message),
  )
  useKeys({
    j: { said: 'Next question', act: () => place + 1 < rows && go(to(place + 1)) },
    k: { said: 'Previous question', act: () => place > 0 && go(to(place - 1)) },
    ...(hasWrong && { n: { said: 'Next wrong question', act: wrong } }),
  })
  return html`<nav class="steps" aria-label="Questions">
    ${place > 0 && html`<a href=${to(place - 1)} rel="prev">Previous<kbd>k</kbd></a>`}
    ${place + 1 < rows && html`<a href=${to(place + 1)} rel="next">Next<kbd>j</kbd></a>`}
    ${hasWrong && html`<button type="button" onClick=${wrong}>Next wrong one<kbd>n</kbd></button>`}
    ${problem && html`<span role="status">${problem}</span>`}
  </nav>`
}

const Tags = ({ isRight, isChosen }) => html`${isRight && html`<span class="tag">right</span>`}${isChosen && html`<span class="tag chosen">chosen</span>`}`

function Candidates({ asked, slug, task, about }) {
  const [showsAll, setShowsAll] = useState(false)
  const picture = image => html`<${Picture} large slug=${slug} task=${task} sha256=${asked.images[image]} about=${about} name=${`image ${image + 1}`} />`
  if (asked.target === null && asked.images.length > 1 && asked.texts.length > 1) return html`<${Square} asked=${asked} metric=${about.metric} picture=${picture} />`
  const flat = asked.scores.flat()
  const [best, worst] = [Math.max(...flat), Math.min(...flat)]
  const textsCompete = asked.texts.length > 1
  const chosen = answered(asked)
  const order = [...flat.keys()].sort((one, other) => flat[other] - flat[one])
  const shown = showsAll ? order : order.filter((cell, rank) => rank < FIRST_CANDIDATES || cell === asked.target)
  const rows = shown.map(cell => ({ cell, score: flat[cell], behind: flat[cell] - best, share: best === worst ? 1 : (flat[cell] - worst) / (best - worst), rating: asked.ratings?.[cell] }))
  const columns = [
    { key: 'candidate', label: 'candidate', value: ({ cell }) => (textsCompete ? asked.texts[cell] : cellName(asked, cell)), cell: ({ cell }) => html`<span class=${cell === asked.target ? 'right-one' : ''}>${textsCompete ? asked.texts[cell] : picture(cell)}<${Tags} isRight=${cell === asked.target} isChosen=${cell === chosen} /></span>` },
    { key: 'number', label: 'no.', value: ({ cell }) => cell + 1, isNumber: true, help: 'The number in the question' },
    { key: 'score', label: 'score', value: ({ score }) => score, cell: ({ score }) => scored(score), isNumber: true, help: 'As stored. Higher is a better match' },
    { key: 'behind', label: 'from the best', value: ({ behind }) => behind, cell: ({ behind }) => (behind === 0 ? 'best' : signed(behind)), isNumber: true },
    { key: 'share', label: 'share', help: 'From the worst score to the best one', value: ({ share }) => share, cell: ({ cell, share }) => html`<span class=${cell === asked.target ? 'is-right' : ''}><span class="worth" role="img" aria-label=${`${number(100 * share, 0)}%`}><span style=${`width: ${100 * share}%`}></span></span></span>`, isNumber: true },
    ...(asked.ratings ? [{ key: 'rating', label: 'rating', value: ({ rating }) => rating, isNumber: true, help: 'What people said' }] : []),
  ]
  return html`
    <div class="given">${textsCompete ? asked.images.map((_, image) => picture(image)) : html`<blockquote>${asked.texts[0]}</blockquote>`}</div>
    <div class="wrap"><${Table} caption=${textsCompete ? 'Texts' : 'Images'} name="candidates" isStacked rows=${rows} columns=${columns} rowKey=${({ cell }) => cell} /></div>
    ${shown.length < order.length && html`<button type="button" onClick=${() => setShowsAll(true)}>Show all ${count(order.length)} candidates</button>`}`
}

function Square({ asked, metric, picture }) {
  const { scores } = asked
  const best = Math.max(...scores.flat())
  const lost = comparisons(asked, metric).filter(([right, wrong]) => !(scores.flat()[right] > scores.flat()[wrong]))
  const parts = Object.keys(asked).filter(name => name.startsWith('correct_'))
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label="Scores of images and texts"><table class="matrix">
      <caption>Scores of images and texts: as stored, and from the best</caption>
      <thead><tr><td></td>${asked.texts.map(text => html`<th scope="col" class="long">${text}</th>`)}</tr></thead>
      <tbody>${scores.map((line, image) => html`<tr><th scope="row">${picture(image)}</th>${line.map((score, text) => {
        const isBelonging = typeof asked.correct === 'boolean' && belongs(image, text, metric)
        return html`<td class=${isBelonging ? 'belongs' : ''}>${scored(score)}<br /><span class="muted">${score === best ? 'best' : signed(score - best)}</span><br />
          ${isBelonging && html`<span class="tag">right</span>`}${score === Math.max(...line) && html`<span class="tag chosen">best of its image</span>`}${score === Math.max(...scores.map(row => row[text])) && html`<span class="tag chosen">best of its text</span>`}</td>`
      })}</tr>`)}</tbody>
    </table></div>
    ${parts.length > 0 && html`<p class="about">${parts.map(part => html`<span>${words(part.slice(8)).replace(' at ', '@')}: <${Verdict} row=${{ correct: asked[part], tie: asked[part.replace('correct', 'tie')] }} withWords /></span>`)}</p>`}
    ${lost.length > 0 && html`<p>Lost comparisons: ${lost.map(([right, wrong]) => `${cellName(asked, right)} against ${cellName(asked, wrong)}`).join('; ')}.</p>`}`
}

function Evidence({ found, cells, isExact, asked, about, name }) {
  const { metric, timesteps } = about
  const near = closest(asked, metric)
  const rights = new Set(comparisons(asked, metric).map(([right]) => right))
  const series = shownCells(asked, metric, DRAWN_CANDIDATES).map(cell => ({ name: cellName(asked, cell), mark: rights.has(cell) ? 'right' : cell === near?.wrong ? 'wrong' : 'other', values: cells[cell].errors, cell }))
  const compared = near ? comparedCells(asked, metric, cells) : []
  const ahead = near && less(cells[near.right].scores, cells[near.wrong].scores)
  const names = near && { right: cellName(asked, near.right), wrong: cellName(asked, near.wrong) }
  const shares = decisions(compared)
  const hasTimes = timesteps && timesteps.length >= found.samples
  const behind = compared.slice(0, DRAWN_CANDIDATES).map(({ right, wrong, ahead: values }, place) => ({
    name: rights.size > 1 ? `${cellName(asked, wrong)} minus ${cellName(asked, right)}` : cellName(asked, wrong),
    mark: place ? 'other' : 'wrong', values: values.map(value => (value === null ? null : -value)),
  }))
  return html`
    <${Taken} cells=${cells} isExact=${isExact} asked=${asked} about=${about} compared=${compared} budget=${timesteps?.length ?? about.num_samples ?? found.samples} />
    ${found.samples > 1 && html`<div class="figures">
      <${Strips} series=${series} name=${name} />
      ${near && ahead.some(value => value !== null) && html`<${Differences} values=${ahead} names=${names} name=${name} />`}
      ${hasTimes && html`<${ByTimestep} title="Error by timestep" label="error" series=${series} names=${names} timesteps=${timesteps} name=${`${name}-timesteps`} />`}
      ${hasTimes && near && html`<${ByTimestep} title="Right minus best wrong, by timestep" label="difference of scores" zero series=${[{ name: `${names.right} minus ${names.wrong}`, mark: 'right', values: ahead }]} timesteps=${timesteps} name=${`${name}-timestep-differences`} />`}
      ${near && html`<${Running} series=${behind} names=${names} name=${name} />`}
      ${shares && html`<${Decisions} shares=${shares} name=${name} />`}
    </div>`}
    <${Terms} found=${found} cells=${cells} asked=${asked} about=${about} />`
}

// How many samples there are, and from which on the answer stays.
function Taken({ cells, isExact, asked, about, compared, budget }) {
  const most = Math.max(...cells.map(({ taken }) => taken))
  if (most === 1 && !about.raced) return html`<p>One sample for each candidate.</p>`
  if (!isExact) return html`<p>A race decided this question after at most ${count(most)} of up to ${count(budget)} samples. The figures show all recorded samples of its pairs: other questions may have taken some of them.</p>`
  if (about.raced) {
    const least = Math.min(...cells.map(({ taken }) => taken))
    return html`<p>${most < budget
      ? `The race decided this question after ${count(most)} of up to ${count(budget)} samples.`
      : `The race took all ${count(budget)} samples for this question.`}${least < most ? ` The first candidate left it after ${count(least)}.` : ''}</p>`
  }
  const since = stableSince(compared)
  return html`<p>${count(most)} samples for each candidate.${since === null ? '' : ` In their order, the answer stays ${asked.correct ? 'right' : 'wrong'} from sample ${count(since)} on.`}</p>`
}

function stableSince(compared) {
  const total = compared[0]?.ahead.length
  if (!total || compared.some(({ ahead }) => ahead.includes(null))) return null
  const sums = compared.map(() => 0)
  let [since, last] = [1, null]
  for (let sample = 0; sample < total; sample++) {
    compared.forEach(({ ahead }, place) => { sums[place] += ahead[sample] })
    const isRight = sums.every(sum => sum > 0)
    if (isRight !== last) [since, last] = [sample + 1, isRight]
  }
  return since
}

const TERMS = {
  own: ['error', 'of the image under the text'],
  unconditional: ['unconditional error', 'of the image under the empty text'],
  gray_image: ['error of the gray image', 'of a gray image under the text'],
}

// How the scores follow from the errors.
function Terms({ found, cells, asked, about }) {
  const names = Object.keys(found.terms)
  const flat = asked.scores.flat()
  const isSame = isReproduced(asked, cells)
  const formula = names.map((name, place) => (place ? ` + ${TERMS[name]?.[0] ?? words(name)}` : `−${TERMS[name]?.[0] ?? words(name)}`)).join('')
  const means = about.weights ? 'as weighted means over the samples' : 'as means over the samples'
  const note = isSame ? `Score = ${formula}, ${means}. The stored scores agree.`
    : about.raced ? `Score = ${formula}. A race stores the winner's mean, and how far the others are behind on the samples that both took. It may weigh samples, so that plain means differ.`
      : `Score = ${formula}, ${means}. The stored scores differ from plain means: the run weighs its samples, or rounds its errors.`
  const columns = [
    { key: 'candidate', label: 'candidate' },
    { key: 'samples', label: 'samples', isNumber: true },
    ...names.map(name => ({ key: name, label: TERMS[name]?.[0] ?? words(name), help: TERMS[name]?.[1], isNumber: true, cell: row => scored(row[name]) })),
    { key: 'mean', label: 'mean score', isNumber: true, cell: row => scored(row.mean) },
    { key: 'stored', label: 'stored score', isNumber: true, cell: row => scored(row.stored) },
  ]
  const rows = cells.map(({ cell, values, scores, taken }) => ({ candidate: cellName(asked, cell), samples: taken, ...Object.fromEntries(names.map(name => [name, mean(values[name].map((value, sample) => (value === null ? null : value * (about.weights?.[sample] ?? 1))))])), mean: mean(scores), stored: flat[cell] }))
  return html`<h3>From errors to scores</h3><p class="note">${note}</p><${Table} caption="Mean errors and scores" name="terms" columns=${columns} rows=${rows} />`
}

// The same question in other runs: by its number first, else by its id.
async function readOthers({ slug, task, place, asked, named }) {
  const runs = await othersWith(slug, task, named)
  const chosen = named.length ? runs.filter(run => named.includes(run.slug)).slice(0, SHOWN_RUNS) : runs.slice(0, SHOWN_RUNS)
  const answers = await Promise.all(chosen.map(async run => {
    try {
      const [theirs, about] = await Promise.all([rowOf(run.slug), source.run(run.slug).then(({ tasks }) => tasks[task])])
      return { run, about, ...theirs }
    } catch (error) {
      return { run, problem: error.message }
    }
  }))
  return { runs, answers: [...answers.filter(({ problem }) => !problem), ...answers.filter(({ problem }) => problem)] }

  async function rowOf(other) {
    const read = async row => {
      const [found] = await search.read({ slug: other, task, rows: [row] })
      return found && question(found)
    }
    let [row, theirs] = [place, await read(place)]
    if (theirs?.id !== asked.id) {
      [[row]] = await search.places({ slug, task, rows: [place], others: [other] })
      if (row < 0) return { problem: row === search.MISSING ? 'It does not have this question.' : ASKS_OTHERWISE }
      theirs = await read(row)
    }
    return asksSame(asked, theirs) ? { row, asked: theirs } : { problem: ASKS_OTHERWISE }
  }
}

const ASKS_OTHERWISE = 'It has a question of this id with other texts, images or another target.'

function Others({ found: { runs, answers }, own, slug, task, place }) {
  if (!runs.length) return html`<p class="empty">No other run that is shown has this task.</p>`
  const slugs = answers.map(({ run }) => run.slug)
  const rows = [{ run: { ...own.run, slug }, asked: own.asked, row: place, about: { metric: own.metric }, isOwn: true }, ...answers]
  const rest = runs.filter(run => !slugs.includes(run.slug))
  const shows = list => link(['question', slug, task, place], { with: list.join(',') })
  const columns = [
    { key: 'run', label: 'run', value: ({ run }) => run.label, cell: ({ run, row, isOwn }) => (isOwn || row === undefined ? html`${run.label}${isOwn && html` <span class="muted">(this run)</span>`}` : html`<a href=${link(['question', run.slug, task, row], { with: [slug, ...slugs.filter(one => one !== run.slug)].slice(0, SHOWN_RUNS).join(',') })}>${run.label}</a>`) },
    { key: 'verdict', label: 'verdict', value: one => one.problem ?? one.asked?.correct, cell: one => (one.problem ? one.problem : html`<${Verdict} row=${one.asked} withWords />`) },
    { key: 'answer', label: 'answer', value: one => one.asked && cellText(one.asked, answered(one.asked)), cell: one => one.asked && (cellText(one.asked, answered(one.asked)) ?? '–') },
    { key: 'margin', label: 'margin', value: one => one.asked && margin(one.asked, one.about?.metric ?? own.metric), cell: one => (one.asked ? signed(margin(one.asked, one.about?.metric ?? own.metric)) : '–'), isNumber: true },
  ]
  return html`<div class="wrap"><${Table} caption="Answers of all runs" name="answers" isStacked columns=${columns} rows=${rows} rowKey=${({ run }) => run.slug} /></div>
    ${rest.length > 0 && html`<p class="filters"><label>${answers.length < SHOWN_RUNS ? 'Add a run' : `At most ${SHOWN_RUNS} runs at once. Show instead of the last`}
      <select onChange=${event => event.target.value && go(shows([...slugs.slice(0, SHOWN_RUNS - 1), event.target.value]))}>
        <option value="">choose</option>${rest.map(run => html`<option value=${run.slug}>${run.label}</option>`)}
      </select></label></p>`}
    <p>${answers.filter(({ asked }) => asked).map(({ run }, number) => html`${number ? ' · ' : 'All questions with another answer: '}<a href=${link(['questions', slug, task], { with: run.slug })}>${run.label}</a>`)}</p>`
}

function Similar({ slug, task, place, metric, isComplete }) {
  const [box, isSeen] = useSeen()
  const state = useData(() => (isComplete && isSeen ? search.similar({ slug, task, row: place, metric }) : undefined), [isComplete, isSeen])
  if (!isSeen) return html`<div ref=${box}><p class="empty">The page looks for them when you come here.</p></div>`
  return html`<div ref=${box}><${Loaded} state=${state} what="similar failures">${rows => (rows.length
    ? html`<p class="note">Wrong questions of the same group, those with most words in common first. A rare word counts more (IDF).</p>
      <ol>${rows.map(({ row, id, text, margin: by, shared }) => html`<li><a href=${link(['question', slug, task, row])}>${text || id}</a> <span class="muted">${Number.isFinite(by) && signed(by)} ${shared.length > 0 && `· ${shared.join(', ')}`}</span></li>`)}</ol>`
    : html`<p class="empty">No other question of its groups is wrong.</p>`)}<//></div>`
}

// Whether an element has been near the part of the page that is seen.
function useSeen() {
  const box = useRef()
  const [isSeen, setSeen] = useState(false)
  useEffect(() => {
    const watch = new IntersectionObserver(entries => entries.some(({ isIntersecting }) => isIntersecting) && setSeen(true), { rootMargin: '300px' })
    watch.observe(box.current)
    return () => watch.disconnect()
  }, [])
  return [box, isSeen]
}

// A text question: what it was made of, its options, and the model's words.
function Words({ asked, slug, task, about, place, isComplete }) {
  const flat = asked.scores?.[0] ?? []
  const best = Math.max(...flat.filter(Number.isFinite))
  const rows = asked.options.map((text, cell) => ({ cell, text, score: flat[cell], behind: flat[cell] - best }))
  const columns = [
    { key: 'option', label: 'option', value: ({ text }) => text, cell: ({ cell, text }) => html`<span class=${cell === asked.target ? 'right-one' : ''}>${text}<${Tags} isRight=${cell === asked.target} isChosen=${cell === asked.chosen} /></span>` },
    ...(flat.length ? [
      { key: 'score', label: 'score', cell: ({ score }) => scored(score), isNumber: true },
      { key: 'behind', label: 'from the best', cell: ({ behind }) => (behind === 0 ? 'best' : signed(behind)), isNumber: true },
    ] : []),
  ]
  return html`
    ${asked.pictures?.length > 0 && html`<div class="given">${asked.pictures.map((sha256, number) => html`<figure><${Picture} large slug=${slug} task=${task} sha256=${sha256} about=${about} name=${`image ${number + 1}`} /><figcaption>${asked.captions?.[number]}</figcaption></figure>`)}</div>`}
    <dl class="named">${asked.named.map(([name, text]) => html`<dt>${words(name)}</dt><dd>${text}</dd>`)}</dl>
    <div class="wrap"><${Table} caption="Options" name="options" rows=${rows} columns=${columns} /></div>
    ${asked.status !== 'answered' && html`<p class="problem">${asked.status === 'failed' ? 'The call failed, so the question does not count.' : 'No answer could be read from the model\'s words, so the question counts as wrong.'} Status: ${asked.status}.</p>`}
    <h2>The model's words</h2>
    ${asked.responses.length ? asked.responses.map((response, request) => html`<${Response} text=${response} title=${asked.responses.length > 1 ? `Request ${request + 1}` : ''} choice=${asked.choices[request]} options=${asked.options} hasChoice=${request < asked.choices.length} />`) : html`<p class="empty">The run has kept none.</p>`}
    ${asked.pair !== null && asked.pair !== undefined && html`<${Partners} slug=${slug} task=${task} place=${place} isComplete=${isComplete} />`}`
}

function Response({ text, title, choice, options, hasChoice }) {
  return html`<section>
    ${title && html`<h3>${title}</h3>`}
    ${hasChoice && html`<p class="about">Choice: ${choice === null ? 'none that could be read' : options[choice]}</p>`}
    ${text === null ? html`<p class="empty">A response without a text.</p>` : thoughts(text).map(({ isThought, part }) => (isThought
      ? html`<details><summary>Thoughts (${count(part.length)} letters)</summary><div class="quoted">${part}</div></details>`
      : html`<div class="quoted" tabindex="0" role="region" aria-label="The model's words">${part}</div>`))}
  </section>`
}

// The parts of a response, in order: thoughts stand between <think> and </think>, or to the end.
function thoughts(text) {
  return text.split(/(<think>[\s\S]*?(?:<\/think>|$))/).filter(part => part.trim()).map(part => ({
    isThought: part.startsWith('<think>'),
    part: part.replace(/^<think>|<\/think>$/g, '').trim(),
  }))
}

function Partners({ slug, task, place, isComplete }) {
  const state = useData(async () => {
    if (!isComplete) return undefined
    const places = await search.alike({ slug, task, row: place, column: 'pair' })
    const rows = await search.read({ slug, task, rows: places })
    return rows.map((row, at) => ({ row: places[at], asked: question(row) }))
  }, [isComplete])
  return html`<h2>Of the same pair</h2><${Loaded} state=${state} what="the pair">${rows => (rows.length
    ? html`<ul>${rows.map(({ row, asked }) => html`<li><a href=${link(['question', slug, task, row])}>${textOf(asked)}</a> <${Verdict} row=${asked} withWords /></li>`)}</ul>`
    : html`<p class="empty">The run has no other question of this pair.</p>`)}<//>`
}

function Row({ stored, id }) {
  const [said, setSaid] = useState('')
  const text = JSON.stringify(stored, null, 2)
  const copy = (content, what) => navigator.clipboard.writeText(content).then(() => setSaid(`Copied ${what}.`), () => setSaid('The browser does not let the page copy: mark the text below.'))
  return html`<p class="steps">
      <button type="button" onClick=${() => copy(id, 'the id')}>Copy the id</button>
      <button type="button" onClick=${() => copy(text, 'the row')}>Copy the row as JSON</button>
      <span role="status">${said}</span></p>
    <details><summary>The row as JSON</summary><pre class="quoted" tabindex="0">${text}</pre></details>`
}
